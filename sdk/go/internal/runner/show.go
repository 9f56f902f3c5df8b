package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
)

// show notes the texts that the language makes of values for people who debug, and for logs.
func (o *outcome) show(values ...any) {
	for _, value := range values {
		o.Shown = append(o.Shown, fmt.Sprintf("%v %+v %#v %s", value, value, value, value))
		// Values inside of others are shown by other ways than alone.
		inside := struct{ Value any }{value}
		if text, err := json.Marshal(inside); err == nil {
			o.Shown = append(o.Shown, string(text))
		}
		var log bytes.Buffer
		slog.New(slog.NewJSONHandler(&log, nil)).Info("shown", "value", value, "inside", inside)
		slog.New(slog.NewTextHandler(&log, nil)).Info("shown", "value", value, "inside", inside)
		o.Shown = append(o.Shown, log.String())
	}
}
