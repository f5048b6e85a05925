# SPDX-License-Identifier: Apache-2.0
# Of what `go test -json` says: the last lines that each failed test wrote, for the log of a long run may be gone.
function field(name, from) {
	from = index($0, "\"" name "\":\"")
	if (!from) return ""
	from = substr($0, from + length(name) + 4)
	match(from, /^([^"\\]|\\.)*/)
	return substr(from, 1, RLENGTH)
}
/"Action":"output"/ && /"Test":"/ {
	line = field("Output")
	if (line ~ /^(=== |(    )*--- )/) next
	sub(/\\n$/, "", line)
	gsub(/\\n|\\t/, " ", line); gsub(/\\"/, "\"", line)
	gsub(/\\u003c/, "<", line); gsub(/\\u003e/, ">", line); gsub(/\\u0026/, "\\&", line)
	test = field("Package") " " field("Test")
	for (n = most; n > 1; n--) said[test, n] = said[test, n - 1]
	said[test, 1] = substr(line, 1, 400)
}
/"Action":"fail"/ && /"Test":"/ {
	test = field("Package") " " field("Test")
	if (said[test, 1] != "") print "WHY " test
	for (n = most; n >= 1; n--) { if (said[test, n] != "") print said[test, n]; delete said[test, n] }
}
/"Action":"(pass|skip)"/ && /"Test":"/ { test = field("Package") " " field("Test"); for (n = 1; n <= most; n++) delete said[test, n] }
