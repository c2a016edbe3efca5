"""Reading a stream: a feed at the peer that has the stream, and whole epochs at the reader's
peer."""
