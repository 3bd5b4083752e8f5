#!/bin/sh
# Writes the version script and the stubs of the fake library, so that it has every name and version of the installed one.
#
#   symbols.sh <installed libibverbs.so.1> <newest public version, or "all"> <map> <stubs.c> <object>...
#
# A public name of a current version must be defined in an object: a new rdma-core with a new verb fails the build here.
set -eu
library=$1 newest=$2 map=$3 stubs=$4
shift 4

{
	nm -f posix "$@" | sed 's/^/own /'
	nm -D -f posix --defined-only --with-symbol-versions "$library" | sed 's/^/lib /'
} | awk -v newest="$newest" -v map="$map" -v stubs="$stubs" '
function minor(version) { return substr(version, length("IBVERBS_1.") + 1) + 0 }
function want(version) {
	if (version ~ /PRIVATE/ || newest == "all") return 1
	return minor(version) <= minor("IBVERBS_" newest)
}
function stub(name, symbol, type) {
	if (type ~ /[BDRV]/) print "_Bool " symbol ";" > stubs
	else if (name ~ /^ibv_(alloc|create|get_device_(list|name)|open_device|reg_mr)/) print "void *" symbol "(void) { return none(\"" name "\"); }" > stubs
	else if (name ~ /register_driver/) print "void " symbol "(void) {}" > stubs
	else print "int " symbol "(void) { return unsupported(\"" name "\"); }" > stubs
}
BEGIN {
	print "/* Made by symbols.sh: names that the real library has and this one does not carry out. */" > stubs
	print "#include <errno.h>\n#include <stdio.h>\n#include <stddef.h>" > stubs
	print "__attribute__((unused)) static int unsupported(const char *name)\n{" > stubs
	print "\tstatic int said;\n\tif (!__atomic_exchange_n(&said, 1, __ATOMIC_RELAXED))" > stubs
	print "\t\tfprintf(stderr, \"fakeverbs: %s is not supported\\n\", name);" > stubs
	print "\terrno = EOPNOTSUPP;\n\treturn EOPNOTSUPP;\n}" > stubs
	print "__attribute__((unused)) static void *none(const char *name)\n{\n\tunsupported(name);\n\treturn NULL;\n}" > stubs
}
$1 == "own" && $3 ~ /[A-TV-Z]/ { own[$2] = 1 }
$1 == "lib" && $3 != "A" {
	split($2, part, /@+/)
	name = part[1]; version = part[2]
	if (!want(version)) next
	versions[version] = 1
	if ($2 !~ /@@/) {
		old = "old_" ++count "_" name
		stub(name, old, $3)
		print "__asm__(\".symver " old ", " name "@" version "\");" > stubs
		next
	}
	if (!(name in own)) {
		if (version !~ /PRIVATE/) {
			print "symbols.sh: " name "@" version " is not defined by the fake" > "/dev/stderr"
			failed = 1
		}
		stub(name, name, $3)
	}
	names[version] = names[version] "\n\t" name ";"
}
END {
	if (failed) exit 1
	for (m = 0; m < 100; m++) {
		v = "IBVERBS_1." m
		if (!(v in versions)) continue
		printf "%s {%s\n}%s;\n", v, names[v] ? "\nglobal:" names[v] : "", previous ? " " previous : "" > map
		previous = v
	}
	# The wildcard stands in the last node: in that of the oldest version it would hide the names of that version, too.
	for (v in versions) if (v ~ /PRIVATE/) printf "%s {\nglobal:%s\nlocal:\n\t*;\n};\n", v, names[v] > map
}'
