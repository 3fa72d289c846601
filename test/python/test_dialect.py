# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The dialect from Python and from C: operations are built, types and enumerations known, errors raised."""

import ctypes
import pathlib
import time

import piper
import pytest
from piper._mlir import ir
from piper._mlir.dialects import piper as d

LIBRARY = pathlib.Path(piper.__file__).parent / "_mlir" / "_mlir_libs" / "libPiperMLIR.so"


@pytest.fixture
def module():
    with ir.Context(), ir.Location.unknown():
        module = ir.Module.create()
        with ir.InsertionPoint(module.body):
            yield module


def ranks(*values: int) -> ir.DenseI64ArrayAttr:
    return ir.DenseI64ArrayAttr.get(list(values))


def strings(*values: str) -> ir.ArrayAttr:
    return ir.ArrayAttr.get([ir.StringAttr.get(value) for value in values])


def vector(length: int) -> ir.Type:
    return ir.RankedTensorType.get([length], ir.F32Type.get())


@pytest.mark.parametrize("kind", ["bundle", "token", "message"])
def test_types(kind):
    cls = getattr(d, f"{kind.capitalize()}Type")
    with ir.Context() as context:
        built = cls.get()
        assert str(built) == f"!piper.{kind}"
        assert built == cls.get(context) == ir.Type.parse(f"!piper.{kind}")
        # A type that comes back from the IR has its own class.
        assert type(ir.Type.parse(f"!piper.{kind}")) is cls
        with pytest.raises(ValueError, match="Cannot cast type"):
            cls(ir.F32Type.get())


def test_graph_is_built_op_by_op(module):
    d.MeshOp("mesh", strings("dp"), ranks(2))
    d.StreamOp("comm", sms=20)
    d.StateOp("w", ir.TypeAttr.get(vector(8)), d.StateKind.parameter, strings("w"), trainable=True)
    graph = d.GraphOp("step", 16)
    with ir.InsertionPoint(graph.body.blocks.append()):
        w = d.ReadOp(vector(8), "w")
        reduced = d.AllReduceOp(vector(8), d.TokenType.get(), d.Reduction.sum, w, [], ranks=ranks(0, 1), stream="comm")
        assert type(reduced.token.type) is d.TokenType
        pair = d.PackOp(vector(2), [])
        d.ReturnOp([pair])
    assert module.operation.verify()
    text = str(module)
    assert 'piper.state @w : tensor<8xf32> parameter trainable ["w"]' in text
    assert "piper.all_reduce sum %0 on [0, 1] stream @comm : tensor<8xf32> -> tensor<8xf32>" in text
    assert str(ir.Module.parse(text)) == text


def test_attributes_are_read_back(module):
    module = ir.Module.parse(
        "piper.chunk @f B operands [2] results [1] [{binding = {rows = 4}, function = @g}]\n"
        "func.func private @g(tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>"
    )
    chunk = module.body.operations[0]
    assert isinstance(chunk, d.ChunkOp)
    # `pass` is a keyword of Python.
    assert d.PassKind(ir.IntegerAttr(chunk.attributes["pass"]).value) is d.PassKind.B
    assert list(chunk.operand_counts) == [2] and list(chunk.result_counts) == [1]
    assert [member["function"].value for member in chunk.members] == ["g"]


def test_a_broken_module_raises_with_the_note(module):
    with pytest.raises(ir.MLIRError) as error:
        ir.Module.parse('piper.mesh @a ["dp"] [2]\npiper.mesh @b ["dp"] [2]')
    assert "expected at most one in a module, got a second" in str(error.value)
    assert "the first is here" in str(error.value)


def pipeline(microbatches: int, replicas: int) -> str:
    """A forward pipeline of 4 stages, as text."""
    stages = range(4)
    groups = [list(range(stage * replicas, (stage + 1) * replicas)) for stage in stages]
    lines = [f'piper.mesh @mesh ["pp", "dp"] [4, {replicas}]']
    lines.append("func.func private @f(tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4xf32>)")
    lines.append("piper.chunk @c F operands [1] results [1, 1] [{binding = {rows = 4}, function = @f}]")
    lines.append("piper.graph @step rows 4 {\n%both = piper.pack () : () -> tensor<2xf32>")
    for i in range(microbatches):
        part = f"microbatch {i} of {microbatches}"
        lines.append(f'%x{i}_0 = piper.input "x" 0 split {part} : tensor<?x8xf32>')
        for stage in stages:
            value = f"{i}_{stage}"
            lines.append(
                f"%y{value}, %b{value}, %t{value} = piper.compute @c(%x{value}) F {{}} {part} on {groups[stage]}"
                f" functions [@f] {[0] * replicas} : (tensor<?x8xf32>) -> (tensor<?x8xf32>, !piper.bundle)"
            )
            if stage + 1 in stages:
                source, target = groups[stage], groups[stage + 1]
                lines.append(
                    f"%m{value}, %u{value} = piper.send %y{value} on {source} to {target} {part} : tensor<?x8xf32>"
                )
                lines.append(
                    f"%x{i}_{stage + 1}, %v{value} = piper.recv %m{value} on {target} from {source} {part} : tensor<?x8xf32>"
                )
    return "\n".join([*lines, "piper.return %both : tensor<2xf32>\n}"])


def seconds_to_verify(text: str, times: int) -> float:
    """CPU seconds of `times` verifications."""
    with ir.Context():
        module = ir.Module.parse(text)

        def measure() -> float:
            start = time.process_time()
            for _ in range(times):
                assert module.operation.verify()
            return time.process_time() - start

        return min(measure() for _ in range(5))


def test_verification_is_linear_in_nodes_and_free_of_ranks():
    # Equal work if linear, so that both take about as long and a busy machine disturbs both alike.
    base = seconds_to_verify(pipeline(100, 2), times=16)
    # Quadratic would be 16 times as long; 128 if every node looked at its group's ranks.
    assert seconds_to_verify(pipeline(1600, 2), times=1) < 6 * base
    assert seconds_to_verify(pipeline(100, 256), times=16) < 6 * base


class Handle(ctypes.Structure):
    """MlirContext, MlirAttribute and the like: one pointer."""

    _fields_ = [("pointer", ctypes.c_void_p)]


class Text(ctypes.Structure):
    """MlirStringRef."""

    _fields_ = [("data", ctypes.POINTER(ctypes.c_char)), ("length", ctypes.c_size_t)]

    def __str__(self) -> str:
        return ctypes.string_at(self.data, self.length).decode()


@pytest.fixture(scope="module")
def library():
    library = ctypes.CDLL(str(LIBRARY))
    library.mlirContextCreate.restype = Handle
    library.mlirContextDestroy.argtypes = [Handle]
    library.mlirGetDialectHandle__piper__.restype = Handle
    library.mlirDialectHandleLoadDialect.argtypes = [Handle, Handle]
    library.mlirDialectHandleLoadDialect.restype = Handle
    return library


@pytest.fixture
def c_context(library):
    context = library.mlirContextCreate()
    library.mlirDialectHandleLoadDialect(library.mlirGetDialectHandle__piper__(), context)
    yield context
    library.mlirContextDestroy(context)


def function(library, name, result, *arguments):
    function = getattr(library, name)
    function.restype, function.argtypes = result, list(arguments)
    return function


@pytest.mark.parametrize("kind", ["Bundle", "Token", "Message"])
def test_c_types(library, c_context, kind):
    built = function(library, f"piper{kind}TypeGet", Handle, Handle)(c_context)
    for other in ["Bundle", "Token", "Message"]:
        is_a = function(library, f"piperTypeIsA{other}", ctypes.c_bool, Handle)
        assert is_a(built) == (other == kind)


@pytest.mark.parametrize(
    "enumeration, names",
    [
        ("PassKind", ["F", "B", "I", "W"]),
        ("StateKind", ["parameter", "buffer", "constant"]),
        ("Reduction", ["sum", "max"]),
    ],
)
def test_c_enumerations(library, c_context, enumeration, names):
    get = function(library, f"piper{enumeration}AttrGet", Handle, Handle, ctypes.c_int)
    is_a = function(library, f"piperAttributeIsA{enumeration}", ctypes.c_bool, Handle)
    value_of = function(library, f"piper{enumeration}AttrGetValue", ctypes.c_int, Handle)
    name_of = function(library, f"piper{enumeration}GetName", Text, ctypes.c_int)
    for value, name in enumerate(names):
        assert is_a(get(c_context, value))
        assert value_of(get(c_context, value)) == value
        assert str(name_of(value)) == name
    token = function(library, "mlirStringAttrGet", Handle, Handle, Text)(c_context, name_of(0))
    assert not is_a(token)
