"""Reading tasks: layouts, labels, features, moments and folds."""

from mssl.data.layouts import TaskData, read_tasks, stack_tasks
from mssl.data.moments import Moments
from mssl.data.targets import PairTasks, pair_tasks, vote

__all__ = ["Moments", "PairTasks", "TaskData", "pair_tasks", "read_tasks", "stack_tasks", "vote"]
