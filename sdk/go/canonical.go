package bindery

import (
	"fmt"
	"maps"
	"slices"
	"unicode/utf8"
)

// appendCanonical writes objects, lists and texts as JSON, with the keys of all objects in the order of their UTF-8 bytes and
// without insignificant space. Unlike encoding/json it escapes only what RFC 8785 does.
func appendCanonical(to []byte, value any) []byte {
	switch value := value.(type) {
	case map[string]any:
		to = append(to, '{')
		for number, key := range slices.Sorted(maps.Keys(value)) {
			if number > 0 {
				to = append(to, ',')
			}
			to = append(appendQuoted(to, key), ':')
			to = appendCanonical(to, value[key])
		}
		return append(to, '}')
	case []any:
		to = append(to, '[')
		for number, item := range value {
			if number > 0 {
				to = append(to, ',')
			}
			to = appendCanonical(to, item)
		}
		return append(to, ']')
	case string:
		return appendQuoted(to, value)
	default:
		panic(fmt.Sprintf("bindery: no manifest holds a %T", value))
	}
}

// appendQuoted escapes quotation marks, backslashes and control characters below U+0020.
func appendQuoted(to []byte, text string) []byte {
	const hex = "0123456789abcdef"
	to = append(to, '"')
	for _, char := range text {
		switch char {
		case '"', '\\':
			to = append(to, '\\', byte(char))
		case '\b':
			to = append(to, `\b`...)
		case '\f':
			to = append(to, `\f`...)
		case '\n':
			to = append(to, `\n`...)
		case '\r':
			to = append(to, `\r`...)
		case '\t':
			to = append(to, `\t`...)
		default:
			if char < ' ' {
				to = append(to, `\u00`...)
				to = append(to, hex[char>>4], hex[char&15])
				continue
			}
			to = utf8.AppendRune(to, char)
		}
	}
	return append(to, '"')
}
