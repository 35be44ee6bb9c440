# cmake -DOUTPUT=FILE -DVERSION=NAME -DHEADERS=a.h;b.h -P SymbolMap.cmake: a linker version script that exports the functions and
# tables which the public headers declare, with the version NAME, and nothing else. scripts/check_symbols.sh tests the result.
set(_names)
foreach(_header IN LISTS HEADERS)
  file(READ ${_header} _text)
  string(REPLACE ";" " " _text "${_text}") # which separates list elements, as brackets join them
  string(REPLACE "[" "(" _text "${_text}")
  string(REPLACE "]" ")" _text "${_text}")
  string(REGEX REPLACE "/\\*([^*]|\\*[^/])*\\*+/" "" _text "${_text}")
  string(REGEX REPLACE "(static|typedef|#)[^\n]*" "" _text "${_text}")
  string(REGEX MATCHALL "nm_[a-z0-9_]+\\(" _found "${_text}")
  list(APPEND _names ${_found})
endforeach()
list(TRANSFORM _names REPLACE "[^a-z0-9_]" "")
list(REMOVE_DUPLICATES _names)
list(SORT _names)
list(JOIN _names ";\n        " _names)
file(WRITE ${OUTPUT} "${VERSION} {\n    global:\n        ${_names};\n    local:\n        *;\n};\n")
