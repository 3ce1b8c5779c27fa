"""The formats of receivers, one a module; ``build`` makes those that the settings ask for."""
