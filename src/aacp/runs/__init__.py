"""Files of a run: the folder, the JSON files in it, and where a measurement was made."""
