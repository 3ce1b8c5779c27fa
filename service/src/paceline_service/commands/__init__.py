"""The verbs of the command line, one module each; ``main(argv)`` returns the exit status."""
