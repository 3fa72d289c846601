// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Products of bf16 by oneDNN's matmul primitive, which is made once per thread
// and set of sizes. A processor for which oneDNN has none multiplies in f32.
#include "runtime/comm/Float16.h"
#include "runtime/cpu/KernelFailure.h"
#include "runtime/cpu/kernels/Gemm.h"
#include "runtime/cpu/kernels/Kernels.h"
#include "runtime/cpu/kernels/OneThread.h"

#include <algorithm>
#include <array>
#include <dnnl.h>
#include <map>
#include <vector>

namespace piper::runtime {
namespace {

/// The `imm` array of piper_gemm_bf16.
using Sizes = std::array<int64_t, 14>;

struct Product {
  int64_t batch, m, n, k;
  bool transposeA, transposeB, accumulate;
  int64_t rowA, rowB, rowC, batchA, batchB, batchC;
  bool isNarrow;

  explicit Product(const Sizes &s)
      : batch(s[0]), m(s[1]), n(s[2]), k(s[3]), transposeA(s[4] != 0),
        transposeB(s[5] != 0), accumulate(s[6] != 0), rowA(s[7]), rowB(s[8]),
        rowC(s[9]), batchA(s[10]), batchB(s[11]), batchC(s[12]),
        isNarrow(s[13] != 0) {}
};

//===----------------------------------------------------------------------===//
// By oneDNN
//===----------------------------------------------------------------------===//

dnnl_engine_t engine() {
  static dnnl_engine_t engine = [] {
    dnnl_engine_t made = nullptr;
    dnnl_engine_create(&made, dnnl_cpu, 0);
    return made;
  }();
  return engine;
}

/// A primitive with its operands, whose memory is given call by call. Belongs
/// to one thread.
class Primitive {
public:
  explicit Primitive(const Product &product);
  ~Primitive();
  Primitive(const Primitive &) = delete;

  explicit operator bool() const { return primitive; }
  bool run(void *const *args);

private:
  void addOperand(int index, int64_t batch, int64_t rows, int64_t columns,
                  int64_t batchStride, int64_t rowStride, bool transposed,
                  dnnl_data_type_t type);

  dnnl_memory_desc_t operands[3] = {};
  dnnl_memory_t memories[3] = {};
  dnnl_primitive_t primitive = nullptr;
  dnnl_stream_t stream = nullptr;
};

void Primitive::addOperand(int index, int64_t batch, int64_t rows,
                           int64_t columns, int64_t batchStride,
                           int64_t rowStride, bool transposed,
                           dnnl_data_type_t type) {
  int64_t extents[] = {batch, rows, columns};
  int64_t strides[] = {std::max<int64_t>(batchStride, 1),
                       transposed ? 1 : rowStride, transposed ? rowStride : 1};
  bool batched = batch != 1;
  dnnl_memory_desc_create_with_strides(&operands[index], batched ? 3 : 2,
                                       extents + !batched, type,
                                       strides + !batched);
}

Primitive::Primitive(const Product &p) {
  addOperand(0, p.batch, p.m, p.k, p.batchA, p.rowA, p.transposeA, dnnl_bf16);
  addOperand(1, p.batch, p.k, p.n, p.batchB, p.rowB, p.transposeB, dnnl_bf16);
  addOperand(2, p.batch, p.m, p.n, p.batchC, p.rowC, false,
             p.isNarrow ? dnnl_bf16 : dnnl_f32);
  dnnl_primitive_attr_t attributes = nullptr;
  dnnl_post_ops_t sum = nullptr;
  dnnl_primitive_desc_t description = nullptr;
  bool made = engine() && operands[0] && operands[1] && operands[2] &&
              dnnl_primitive_attr_create(&attributes) == dnnl_success &&
              dnnl_post_ops_create(&sum) == dnnl_success;
  if (made && p.accumulate)
    made = dnnl_post_ops_append_sum(sum, 1.0f, 0, dnnl_data_type_undef) ==
               dnnl_success &&
           dnnl_primitive_attr_set_post_ops(attributes, sum) == dnnl_success;
  made = made &&
         dnnl_matmul_primitive_desc_create(&description, engine(), operands[0],
                                           operands[1], nullptr, operands[2],
                                           attributes) == dnnl_success &&
         dnnl_primitive_create(&primitive, description) == dnnl_success &&
         dnnl_stream_create(&stream, engine(), dnnl_stream_default_flags) ==
             dnnl_success;
  for (int i = 0; made && i < 3; ++i)
    made = dnnl_memory_create(&memories[i], operands[i], engine(),
                              DNNL_MEMORY_NONE) == dnnl_success;
  if (description)
    dnnl_primitive_desc_destroy(description);
  if (sum)
    dnnl_post_ops_destroy(sum);
  if (attributes)
    dnnl_primitive_attr_destroy(attributes);
  if (!made && primitive) {
    dnnl_primitive_destroy(primitive);
    primitive = nullptr;
  }
}

Primitive::~Primitive() {
  for (dnnl_memory_t memory : memories)
    if (memory)
      dnnl_memory_destroy(memory);
  if (stream)
    dnnl_stream_destroy(stream);
  if (primitive)
    dnnl_primitive_destroy(primitive);
  for (dnnl_memory_desc_t operand : operands)
    if (operand)
      dnnl_memory_desc_destroy(operand);
}

bool Primitive::run(void *const *args) {
  for (int i = 0; i < 3; ++i)
    if (dnnl_memory_set_data_handle(memories[i], args[i]) != dnnl_success)
      return false;
  dnnl_exec_arg_t list[] = {{DNNL_ARG_SRC, memories[0]},
                            {DNNL_ARG_WEIGHTS, memories[1]},
                            {DNNL_ARG_DST, memories[2]}};
  return dnnl_primitive_execute(primitive, stream, 3, list) == dnnl_success &&
         dnnl_stream_wait(stream) == dnnl_success;
}

//===----------------------------------------------------------------------===//
// In f32
//===----------------------------------------------------------------------===//

std::vector<float> widened(const BFloat16 *from, int64_t rows, int64_t columns,
                           int64_t rowStride) {
  std::vector<float> wide(rows * columns);
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t column = 0; column < columns; ++column)
      wide[row * columns + column] = float(from[row * rowStride + column]);
  return wide;
}

void multiplyWidened(const Product &p, const BFloat16 *a, const BFloat16 *b,
                     void *c, int64_t offset) {
  int64_t rowsA = p.transposeA ? p.k : p.m, columnsA = p.transposeA ? p.m : p.k;
  int64_t rowsB = p.transposeB ? p.n : p.k, columnsB = p.transposeB ? p.k : p.n;
  std::vector<float> wideA = widened(a, rowsA, columnsA, p.rowA);
  std::vector<float> wideB = widened(b, rowsB, columnsB, p.rowB);
  Matrix left{wideA.data(), columnsA, p.transposeA};
  Matrix right{wideB.data(), columnsB, p.transposeB};
  if (!p.isNarrow) {
    gemm(p.m, p.n, p.k, 1.0f, left, right, p.accumulate ? 1.0f : 0.0f,
         static_cast<float *>(c) + offset, p.rowC);
    return;
  }
  std::vector<float> wideC(p.m * p.n);
  gemm(p.m, p.n, p.k, 1.0f, left, right, 0.0f, wideC.data(), p.n);
  BFloat16 *narrow = static_cast<BFloat16 *>(c) + offset;
  for (int64_t row = 0; row < p.m; ++row)
    for (int64_t column = 0; column < p.n; ++column)
      narrow[row * p.rowC + column] = BFloat16(wideC[row * p.n + column]);
}

} // namespace
} // namespace piper::runtime

using namespace piper::runtime;

void piper_gemm_bf16(void *const *args, const int64_t *imm) {
  Sizes sizes;
  std::copy_n(imm, sizes.size(), sizes.begin());
  Product product(sizes);
  // oneDNN checks row strides even where there is one row.
  product.rowA =
      std::max(product.rowA, product.transposeA ? product.m : product.k);
  product.rowB =
      std::max(product.rowB, product.transposeB ? product.k : product.n);
  product.rowC = std::max(product.rowC, product.n);
  if (product.batch == 0 || product.m == 0 || product.n == 0)
    return;
  if (product.k > 0) {
    static thread_local std::map<Sizes, Primitive> primitives;
    OneThread guard;
    Primitive &primitive = primitives.try_emplace(sizes, product).first->second;
    if (primitive) {
      if (!primitive.run(args))
        piper_kernel_fail("gemm_bf16: oneDNN failed");
      return;
    }
  }
  const auto *a = static_cast<const BFloat16 *>(args[0]);
  const auto *b = static_cast<const BFloat16 *>(args[1]);
  for (int64_t i = 0; i < product.batch; ++i)
    multiplyWidened(product, a + i * product.batchA, b + i * product.batchB,
                    args[2], i * product.batchC);
}
