// Command bench measures the Go SDK beside the raw stubs: calls per second, and the memory of 1,000 watches. It prints one line of
// JSON:
//
//	go run ./internal/bench ADDRESS CA_FILE TOKEN
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

const usage = "usage: bench ADDRESS CA_FILE TOKEN"

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, arguments []string) error {
	if len(arguments) == 4 && (arguments[3] == "sdk" || arguments[3] == "raw") {
		grown, err := measureWatches(ctx, target(arguments), arguments[3])
		if err != nil {
			return err
		}
		return json.NewEncoder(os.Stdout).Encode(grown)
	}
	if len(arguments) != 3 {
		return errors.New(usage)
	}
	calls, err := measureCalls(ctx, target(arguments))
	if err != nil {
		return err
	}
	watches := map[string]any{"count": watchCount}
	for _, side := range []string{"sdk", "raw"} {
		if watches[side], err = watchesInChild(ctx, arguments, side); err != nil {
			return err
		}
	}
	calls["watches"] = watches
	return json.NewEncoder(os.Stdout).Encode(calls)
}

// watchesInChild measures in a fresh process, whose memory holds nothing else.
func watchesInChild(ctx context.Context, arguments []string, side string) (int64, error) {
	program, err := os.Executable()
	if err != nil {
		return 0, err
	}
	child := exec.CommandContext(ctx, program, append(arguments, side)...)
	child.Stderr = os.Stderr
	output, err := child.Output()
	if err != nil {
		return 0, fmt.Errorf("watches of %s: %w", side, err)
	}
	var grown int64
	return grown, json.Unmarshal(output, &grown)
}

// settings are where the server is, and how to call it.
type settings struct{ address, caFile, token string }

func target(arguments []string) settings { return settings{arguments[0], arguments[1], arguments[2]} }

func (s settings) isPlaintext() bool { return strings.HasPrefix(s.address, "http://") }
