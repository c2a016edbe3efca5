"""The load demonstration of the papers: real peers trade tasks until nobody is overloaded."""
