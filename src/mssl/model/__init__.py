"""The mathematics that all solvers share: the objective, the coupling of the tasks, every certificate."""
