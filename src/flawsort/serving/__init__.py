"""What the review and the service share as servers: who is let in, how many, and how it ends."""
