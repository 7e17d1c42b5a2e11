"""The file format that the core calls: how to recognize ONNX files, to read and to write them."""

from __future__ import annotations

from collections.abc import Sequence

import onnx
from mgb.storage.limits import LoadLimits, Meter, metered
from mgb.storage.model_file import DumpInfo, DumpRequest, File, Format, Model, ModelSource, ValueSpec

from .dump import write
from .read import read_model

#: By the number of a field of a ModelProto: how protobuf writes it, 0 for a varint, 2 for what has a length.
_FIELDS = {
    field.number: 0 if field.type == field.TYPE_INT64 else 2 for field in onnx.ModelProto.DESCRIPTOR.fields
}


class Onnx(Format):
    """The format."""

    name = "onnx"

    def recognizes(self, data: bytes) -> bool:
        """Return whether the outermost fields, as far as the bytes go, are those of a ModelProto."""
        place = 0
        while place < len(data):
            begin = place
            tag, place = _varint(data, begin)
            if _FIELDS.get(tag >> 3) != tag & 7:
                is_cut = place == len(data) and data[-1] > 127  # in the middle of this number
                return begin > 0 and is_cut
            value, place = _varint(data, place)
            place += value if tag & 7 else 0
        return place > 0

    def read(
        self,
        source: ModelSource,
        outputs: Sequence[str] | None = None,
        device: str | None = None,
        limits: LoadLimits | None = None,
        trainable: bool = False,
    ) -> Model:
        """See `Format.read`."""
        file = metered(Meter(limits), read_model, source)
        from .model import Model  # it brings the table of all operators, which writing does without

        return Model(file, outputs, device, limits, trainable)

    def outputs(self, source: ModelSource) -> tuple[ValueSpec, ...]:
        """See `Format.outputs`."""
        return read_model(source).outputs

    def write(self, file: File, request: DumpRequest, append: bool = False) -> DumpInfo:
        """See `Format.write`."""
        return write(file, request, append)


def _varint(data: bytes, place: int) -> tuple[int, int]:
    """Return a number in protobuf's spelling, seven bits in a byte, and where it ends."""
    number = shift = 0
    for byte in data[place : place + 10]:
        place += 1
        number |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            break
    return number, place
