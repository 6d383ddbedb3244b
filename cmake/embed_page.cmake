# Writes a C++ file that defines the sources of the HTML report's page as string constants (report/html_report.h).
#   cmake -DDIRECTORY=src/report/html -DSCRIPTS=a.js,b.js -DSTYLE=page.css -DBODY=page.html -DOUTPUT=FILE.cc
#         -P embed_page.cmake

# GCC takes string literals of any length; other compilers at least 64 KiB, so each source is a literal of its own.
function(append_constant name)
  set(text "")
  foreach(file ${ARGN})
    file(READ ${DIRECTORY}/${file} source)
    if(source MATCHES "\\)page\"")
      message(FATAL_ERROR "${file} contains what ends a literal: )page\"")
    endif()
    string(APPEND text "R\"page(${source})page\"\n")
  endforeach()
  string(APPEND code "constexpr char k${name}Text[] = ${text};\n"
                     "const std::string_view kHtml${name}(k${name}Text, sizeof k${name}Text - 1);\n\n")
  set(code "${code}" PARENT_SCOPE)
endfunction()

string(REPLACE "," ";" scripts "${SCRIPTS}")
string(CONCAT code "// Made by cmake/embed_page.cmake of the files in src/report/html/.\n"
                   "#include \"report/html_report.h\"\n\nnamespace rankstacks::report {\n\n")
append_constant(Script ${scripts})
append_constant(Style ${STYLE})
append_constant(Body ${BODY})
string(APPEND code "}  // namespace rankstacks::report\n")
file(WRITE ${OUTPUT} "${code}")
