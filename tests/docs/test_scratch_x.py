import test_docs_commands as t

t.PAGES = ("README.md", "docs/reading.md")
