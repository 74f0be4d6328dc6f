"""What `advise` stands on: findings, and the sources that give them."""
