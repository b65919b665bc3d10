"""Files of a run: the folder, the JSON files in it, and where a measurement was made.

Each subclass of `Record` is a JSON file or a part of one, field by field (docs/formats.md). Units are part of the
names, rates mean *removed*, and a higher score is better. Fields that a newer version added to a file are skipped.
"""
