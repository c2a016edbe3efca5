"""Views: parts of a stream's history under names of their own."""
