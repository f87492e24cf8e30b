"""The parts of the page, one module for each kind; none imports another."""
