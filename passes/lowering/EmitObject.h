// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- EmitObject.h - optimization and code generation by LLVM --*- C++ -*-===//

#ifndef PIPER_PASSES_LOWERING_EMITOBJECT_H
#define PIPER_PASSES_LOWERING_EMITOBJECT_H

#include "passes/lowering/CompileObject.h"

namespace llvm {
class Module;
}

namespace piper {

/// Optimizes `module` for `target` and writes position-independent code to
/// `object.bytes`.
llvm::LogicalResult emitObject(llvm::Module &module, TargetSpec target,
                               CompiledObject &object, std::string &error);

} // namespace piper

#endif // PIPER_PASSES_LOWERING_EMITOBJECT_H
