"""The command line: one verb, one file. Verbs translate flags and print; what they do lives in the layers below."""
