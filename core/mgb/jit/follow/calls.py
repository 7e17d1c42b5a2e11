
class Calls:
    def __init__(self, tell, measured):
        self.originals = {}
    def copy_of(self, f): return f
