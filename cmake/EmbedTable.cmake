# cmake -DOUTPUT=FILE.c -DHEADER=a/b.h -DTYPE=T -DTABLE=NAME -DFOLDER=DIR "-DFILES=x;..." -P EmbedTable.cmake: a table of names,
# relative to FOLDER, and texts of files, as NUL-terminated byte arrays; it ends with {0}.
set(_text "#include \"${HEADER}\"\n")
set(_rows "")
set(_n 0)
foreach(_file IN LISTS FILES)
  file(READ ${FOLDER}/${_file} _bytes HEX)
  string(REGEX REPLACE "(..)" "'\\\\x\\1'," _bytes "${_bytes}")
  string(APPEND _text "static const char text_${_n}[] = {${_bytes}0};\n")
  string(APPEND _rows "    {\"${_file}\", text_${_n}},\n")
  math(EXPR _n "${_n} + 1")
endforeach()
file(WRITE ${OUTPUT} "${_text}const ${TYPE} ${TABLE}[] = {\n${_rows}    {0}};\n")
