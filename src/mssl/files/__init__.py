"""Files: written whole or not at all, tables in and out, models without pickles."""
