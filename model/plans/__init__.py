"""Plans: the actions of an episode as data. A plan is made from a seed, kept in a file and played
again."""
