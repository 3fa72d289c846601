# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# The target PiperOneDNN: oneDNN from the pinned PyPI wheels of the building Python, or from PIPER_ONEDNN_DIR
# (a prefix with include/ and lib/). PyPI has it only as a shared library, so the wheel carries it.

if(NOT PIPER_ONEDNN_DIR)
  execute_process(COMMAND "${Python3_EXECUTABLE}" -c
    "import importlib.metadata as m, pathlib
d = m.distribution('onednn-devel-cpu-gomp')
print(pathlib.Path(d.locate_file(next(f for f in d.files if f.name == 'dnnl_version.h'))).resolve().parent.parent)"
    OUTPUT_VARIABLE PIPER_ONEDNN_DIR OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE _failed ERROR_QUIET)
  if(_failed)
    message(FATAL_ERROR "oneDNN not found: pip install onednn-devel-cpu-gomp, or set PIPER_ONEDNN_DIR")
  endif()
endif()
find_path(PIPER_ONEDNN_INCLUDE dnnl.h HINTS "${PIPER_ONEDNN_DIR}/include" REQUIRED NO_DEFAULT_PATH)
find_library(PIPER_ONEDNN_LIBRARY NAMES libdnnl.so.3 libdnnl.so HINTS "${PIPER_ONEDNN_DIR}/lib" REQUIRED NO_DEFAULT_PATH)

add_library(PiperOneDNN SHARED IMPORTED GLOBAL)
set_target_properties(PiperOneDNN PROPERTIES
  IMPORTED_LOCATION "${PIPER_ONEDNN_LIBRARY}"
  IMPORTED_SONAME libdnnl.so.3
  INTERFACE_INCLUDE_DIRECTORIES "${PIPER_ONEDNN_INCLUDE}")

get_filename_component(_library "${PIPER_ONEDNN_LIBRARY}" REALPATH)
install(FILES "${_library}" DESTINATION . RENAME libdnnl.so.3 COMPONENT ${PIPER_COMPONENT}
  PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
foreach(_file LICENSE THIRD-PARTY-PROGRAMS)
  if(EXISTS "${PIPER_ONEDNN_DIR}/share/doc/onednn/${_file}")
    install(FILES "${PIPER_ONEDNN_DIR}/share/doc/onednn/${_file}" DESTINATION licenses/onednn COMPONENT ${PIPER_COMPONENT})
  endif()
endforeach()
