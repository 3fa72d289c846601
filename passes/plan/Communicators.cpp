// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- Communicators.cpp - who talks to whom ------------------------------===//

#include "passes/plan/Communicators.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace piper;

std::string piper::getFreeName(const SymbolTable &symbols, std::string base) {
  while (symbols.lookup(base))
    base += '_';
  return base;
}

FlatSymbolRefAttr Communicators::create(Location loc, Attribute key,
                                        StringRef prefix,
                                        ArrayRef<Attribute> groups) {
  FlatSymbolRefAttr &name = known[key];
  if (!name) {
    std::string text =
        getFreeName(symbols, (prefix + "." + Twine(known.size() - 1)).str());
    name = FlatSymbolRefAttr::get(builder.getContext(), text);
    CommunicatorOp::create(builder, loc, builder.getStringAttr(text),
                           builder.getArrayAttr(groups));
  }
  return name;
}

FlatSymbolRefAttr Communicators::getForGroup(Location loc,
                                             DenseI64ArrayAttr group,
                                             FlatSymbolRefAttr stream) {
  Attribute use = stream ? Attribute(stream) : builder.getUnitAttr();
  return create(loc, builder.getArrayAttr({group, use}),
                stream ? stream.getValue() : "group", {group});
}

FlatSymbolRefAttr Communicators::getChannel(Location loc,
                                            DenseI64ArrayAttr from,
                                            DenseI64ArrayAttr to,
                                            FlatSymbolRefAttr stream) {
  SmallVector<Attribute> pairs;
  for (auto [source, target] : llvm::zip(from.asArrayRef(), to.asArrayRef()))
    pairs.push_back(builder.getDenseI64ArrayAttr({source, target}));
  Attribute key = builder.getArrayAttr({from, to, stream});
  return create(loc, key, (stream.getValue() + ".p2p").str(), pairs);
}
