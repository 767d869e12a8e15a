"""One program for each library, which a comparison starts in a separate process."""
