"""What pages and the API read, a module for each thing that they show.

Selectors return frozen values made from the mirror and the history with a constant number of queries; they never ask a
cluster and never change anything. Only clusters that are configured are shown.
"""
