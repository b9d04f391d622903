"""Finding the mode and knobs that are fastest among those that lose little enough."""
