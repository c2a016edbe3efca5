"""The screens of `medusa monitor`, and the tables and words that lists share with them."""
