"""Random faults while plans are carried out, judged by what the clusters themselves say."""
