"""The gallery: a page of block ledgers, one for each seed story and for some findings."""
