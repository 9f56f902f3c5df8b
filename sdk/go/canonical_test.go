package bindery

import (
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"testing"
)

func TestKeysAreSortedByBytesAndLittleIsEscaped(t *testing.T) {
	value := map[string]any{
		"b": []any{"1", map[string]any{"z": "", "a": []any{}}}, "\U0001f600": "astral", "\uff5e": "in the basic plane",
		"a": "\"\\/\b\t\n\f\r\x01\x1f\x7f<&>\u2028é",
	}
	const expect = `{"a":"\"\\/\b\t\n\f\r\u0001\u001f` + "\x7f<&>\u2028é" + `","b":["1",{"a":[],"z":""}],` +
		"\"\uff5e\":\"in the basic plane\",\"\U0001f600\":\"astral\"}"
	if got := string(appendCanonical(nil, value)); got != expect {
		t.Errorf("%s\n%s", got, expect)
	}
}

func TestTheCanonicalFormReadsBackAsItself(t *testing.T) {
	for range 1000 {
		value := anyValue(3)
		text := appendCanonical(nil, value)
		var back any
		if err := json.Unmarshal(text, &back); err != nil || !reflect.DeepEqual(back, value) {
			t.Fatalf("%s: %v", text, err)
		}
	}
}

func anyValue(depth int) any {
	switch kind := rand.IntN(3); {
	case depth > 0 && kind == 0:
		fields := map[string]any{}
		for range rand.IntN(4) {
			fields[anyText()] = anyValue(depth - 1)
		}
		return fields
	case depth > 0 && kind == 1:
		items := []any{}
		for range rand.IntN(4) {
			items = append(items, anyValue(depth-1))
		}
		return items
	default:
		return anyText()
	}
}

func anyText() string {
	text := ""
	for range rand.IntN(5) {
		text += string([]rune{0, 8, 9, 10, 12, 13, 31, '"', '\\', '/', '<', 127, 0x2028, 0x2029, 'é', 0x1f600, 'a'}[rand.IntN(17)])
	}
	return text
}
