// Command runner does what the cases of the contract suite ask of the Go SDK. It reads one JSON document per line on standard input,
// and writes one line with what came of it, in the order in which they end.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	bindery "kube-bind.io/bindery/sdk/go"
)

// lineMax limits a line of input, in bytes.
const lineMax = 64 << 20

// line is one line of input.
type line struct {
	ID            string         `json:"id"`
	Client        clientSettings `json:"client"`
	Action        action         `json:"action"`
	Concurrent    int            `json:"concurrent"`
	CancelAfterMs *int64         `json:"cancelAfterMs"`
}

// outcome is one line of output.
type outcome struct {
	ID          string            `json:"id,omitempty"`
	OK          any               `json:"ok,omitempty"`
	Events      *[]map[string]any `json:"events,omitempty"`
	Progress    *int              `json:"progress,omitempty"`
	ResumeToken *string           `json:"resumeToken,omitempty"`
	Error       map[string]any    `json:"error,omitempty"`
	// Shown are the texts that fmt, encoding/json and log/slog make of what the SDK returned; no token may be in them.
	Shown []string `json:"shown,omitempty"`
}

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "runner:", err)
		os.Exit(1)
	}
}

func run(input io.Reader, output io.Writer) error {
	var (
		running sync.WaitGroup
		writing sync.Mutex
	)
	defer running.Wait()
	encoder := json.NewEncoder(output)
	encoder.SetEscapeHTML(false)
	lines := bufio.NewScanner(input)
	lines.Buffer(nil, lineMax)
	for lines.Scan() {
		var in line
		if err := json.Unmarshal(lines.Bytes(), &in); err != nil {
			return fmt.Errorf("no case: %w", err)
		}
		running.Go(func() {
			out := perform(in)
			writing.Lock()
			defer writing.Unlock()
			if err := encoder.Encode(out); err != nil {
				fmt.Fprintln(os.Stderr, "runner:", err)
			}
		})
	}
	return lines.Err()
}

// perform does what a line asks for.
func perform(in line) *outcome {
	out := &outcome{ID: in.ID}
	ctx := context.Background()
	if in.CancelAfterMs != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		timer := time.AfterFunc(time.Duration(*in.CancelAfterMs)*time.Millisecond, cancel)
		defer timer.Stop()
		defer cancel()
	}
	client, err := in.Client.build(out)
	if err != nil {
		out.fail(err)
		return out
	}
	defer client.Close()
	if in.Concurrent > 0 {
		in.Action.actConcurrently(ctx, client, in.Concurrent, out)
		return out
	}
	if err := in.Action.act(ctx, client, out); err != nil {
		out.fail(err)
	}
	return out
}

// actConcurrently does an action several times at the same moment.
func (a action) actConcurrently(ctx context.Context, client *bindery.Client, count int, out *outcome) {
	results := make([]*outcome, count)
	start := make(chan struct{})
	var running sync.WaitGroup
	for number := range results {
		result := new(outcome)
		results[number] = result
		running.Go(func() {
			<-start
			if err := a.act(ctx, client, result); err != nil {
				result.fail(err)
			}
		})
	}
	close(start)
	running.Wait()
	for _, result := range results {
		out.Shown = append(out.Shown, result.Shown...)
		result.Shown = nil
	}
	out.OK = results
}

func (o *outcome) fail(err error) {
	o.show(err)
	o.Error = errorJSON(err)
}
