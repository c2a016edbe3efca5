"""Tasks that run elsewhere: the owner decides who works, the worker computes, the owner follows."""
