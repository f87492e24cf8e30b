"""The mathematics that everybody shares: the objective, the coupling of the tasks, every certificate."""
