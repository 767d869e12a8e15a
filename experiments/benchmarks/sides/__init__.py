"""One program for each library, which a comparison starts in a process of its own."""
