"""The Browse screen: modules and nodes, the details of one of them, and the live bytes."""
