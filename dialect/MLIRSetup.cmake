# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# Finds MLIR and LLVM 22 and prepares them for one static copy inside Piper's own library.
# MLIR_DIR and LLVM_DIR choose any installation; without them the pinned xtc wheels of the building Python are used.

foreach(_project MLIR LLVM)
  if(NOT ${_project}_DIR)
    string(TOLOWER ${_project} _name)
    execute_process(COMMAND "${Python3_EXECUTABLE}" -c
      "import importlib.metadata as m; print(m.distribution('xtc-${_name}-dev').locate_file('${_name}/lib/cmake/${_name}'))"
      OUTPUT_VARIABLE ${_project}_DIR OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE _failed ERROR_QUIET)
    if(_failed)
      message(FATAL_ERROR "${_project} not found: pip install xtc-${_name}-dev, or set ${_project}_DIR")
    endif()
  endif()
endforeach()
find_package(LLVM REQUIRED CONFIG)
find_package(MLIR REQUIRED CONFIG)
if(NOT LLVM_VERSION_MAJOR EQUAL 22)
  message(FATAL_ERROR "expected LLVM 22, got ${LLVM_PACKAGE_VERSION} in ${LLVM_DIR}")
endif()
message(STATUS "LLVM ${LLVM_PACKAGE_VERSION} in ${LLVM_DIR}, MLIR in ${MLIR_DIR}")

# The static MLIR archives are exported against the libLLVM dylib. Two LLVMs in one process do not work, so
# every mention of the dylib becomes the static components.
set(LLVM_LINK_LLVM_DYLIB OFF)
llvm_map_components_to_libnames(_piper_llvm_libs
  core support analysis passes ipo orcjit asmparser bitreader bitwriter irreader linker target targetparser
  transformutils frontendopenmp frontendoffloading debuginfodwarf option remarks binaryformat object jitlink
  executionengine runtimedyld X86CodeGen X86AsmParser X86Desc X86Info NVPTXCodeGen NVPTXDesc NVPTXInfo)
add_library(PiperLLVM INTERFACE)
target_link_libraries(PiperLLVM INTERFACE ${_piper_llvm_libs})
foreach(_target ${MLIR_EXPORTED_TARGETS})
  foreach(_property INTERFACE_LINK_LIBRARIES MLIR_AGGREGATE_DEP_LIBS_IMPORTED)
    get_target_property(_libs ${_target} ${_property})
    if(_libs)
      list(TRANSFORM _libs REPLACE "^LLVM$" "PiperLLVM")
      list(TRANSFORM _libs REPLACE "^\\$<LINK_ONLY:LLVM>$" "$<LINK_ONLY:PiperLLVM>")
      set_target_properties(${_target} PROPERTIES ${_property} "${_libs}")
    endif()
  endforeach()
endforeach()

list(APPEND CMAKE_MODULE_PATH "${MLIR_CMAKE_DIR}" "${LLVM_CMAKE_DIR}")
include(TableGen)
include(AddLLVM)
include(AddMLIR)
# Adds -UNDEBUG where LLVM was built with assertions: class layouts depend on it.
include(HandleLLVMOptions)
include_directories("${PROJECT_SOURCE_DIR}" "${PROJECT_BINARY_DIR}")
include_directories(SYSTEM ${LLVM_INCLUDE_DIRS} ${MLIR_INCLUDE_DIRS})
separate_arguments(LLVM_DEFINITIONS_LIST NATIVE_COMMAND "${LLVM_DEFINITIONS}")
add_definitions(${LLVM_DEFINITIONS_LIST})
