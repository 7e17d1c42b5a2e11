"""The ONNX operators that mgb spells itself; importing this fills the table."""

from . import contractions as contractions
from . import control as control
from . import creation as creation
from . import elementwise as elementwise
from . import indexing as indexing
from . import layout as layout
from . import normalization as normalization
from . import pooling as pooling
from . import quantization as quantization
from . import recurrent as recurrent
from . import reductions as reductions
from . import resize as resize
from . import sampling as sampling
from . import sequences as sequences
from . import signals as signals
from .table import TABLE as TABLE
