"""STUB"""


class Impurity:
    lasts = False

    def __init__(self, reason, file="", line=0):
        self.reason, self.file, self.line = reason, file, line

    def __str__(self):
        return self.reason


class Observer:
    def __init__(self, leaves):
        self.impurities = []
        self.guards = None
        self.leaves = leaves

    def run(self, function, *args, **kwargs):
        return function(*args, **kwargs)

    def impure(self, reason):
        self.impurities.append(Impurity(reason))

    def is_fresh(self, x):
        return True

    def arm(self, obj):
        pass

    def source_of(self, obj):
        return None

    @staticmethod
    def current():
        return None
