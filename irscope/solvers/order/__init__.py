"""Scheduling for least memory: topological orders of operators with a low peak, and proven lower bounds for every order."""
