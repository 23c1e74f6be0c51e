"""The spine: areas within areas, and the areas that cut across them."""
