"""Linear Road: traffic on the expressways of a city, and the tolls and alerts that its cars must
receive."""
