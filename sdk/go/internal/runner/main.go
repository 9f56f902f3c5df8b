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
	CancelAfterMs *int64         `json:"cancelAfterMs"`
}

// outcome is one line of output.
type outcome struct {
	ID          string            `json:"id"`
	OK          any               `json:"ok,omitempty"`
	Events      *[]map[string]any `json:"events,omitempty"`
	Progress    *int              `json:"progress,omitempty"`
	ResumeToken *string           `json:"resumeToken,omitempty"`
	Error       map[string]any    `json:"error,omitempty"`
	// Shown is what fmt makes of client, token source and error; no token may be in it.
	Shown []string `json:"shown"`
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
			out := answer(in)
			writing.Lock()
			defer writing.Unlock()
			if err := encoder.Encode(out); err != nil {
				fmt.Fprintln(os.Stderr, "runner:", err)
			}
		})
	}
	return lines.Err()
}

func answer(in line) *outcome {
	out := &outcome{ID: in.ID, Shown: []string{}}
	ctx := context.Background()
	if in.CancelAfterMs != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		timer := time.AfterFunc(time.Duration(*in.CancelAfterMs)*time.Millisecond, cancel)
		defer timer.Stop()
		defer cancel()
	}
	client, err := in.Client.build(out)
	if err == nil {
		defer client.Close()
		err = in.Action.act(ctx, client, out)
	}
	if err != nil {
		out.show(err)
		out.Error = errorJSON(err)
	}
	return out
}

// show notes what fmt makes of a value.
func (o *outcome) show(value any) {
	o.Shown = append(o.Shown, fmt.Sprintf("%v %+v %#v %s", value, value, value, value))
}

// clientSettings are the settings of a client.
type clientSettings struct {
	Address          string         `json:"address"`
	CAPEM            string         `json:"caPem"`
	CAFile           string         `json:"caFile"`
	ServerName       string         `json:"serverName"`
	AllowPlaintext   bool           `json:"allowPlaintext"`
	Token            *tokenSettings `json:"token"`
	TimeoutMs        int64          `json:"timeoutMs"`
	AttemptTimeoutMs int64          `json:"attemptTimeoutMs"`
	Retry            *retrySettings `json:"retry"`
	Reconnect        *retrySettings `json:"reconnect"`
	SilenceMs        int64          `json:"silenceMs"`
	UserAgent        string         `json:"userAgent"`
}

// tokenSettings name one token source.
type tokenSettings struct {
	Static *string  `json:"static"`
	File   *string  `json:"file"`
	Exec   []string `json:"exec"`
}

type retrySettings struct {
	Attempts int   `json:"attempts"`
	BaseMs   int64 `json:"baseMs"`
	CapMs    int64 `json:"capMs"`
}

func (s clientSettings) build(out *outcome) (*bindery.Client, error) {
	options := []bindery.Option{
		bindery.WithTimeout(milliseconds(s.TimeoutMs)),
		bindery.WithAttemptTimeout(milliseconds(s.AttemptTimeoutMs)),
		bindery.WithWatchTiming(s.timing()),
	}
	if s.CAPEM != "" {
		options = append(options, bindery.WithCAPEM([]byte(s.CAPEM)))
	}
	if s.CAFile != "" {
		options = append(options, bindery.WithCAFile(s.CAFile))
	}
	if s.ServerName != "" {
		options = append(options, bindery.WithServerName(s.ServerName))
	}
	if s.AllowPlaintext {
		options = append(options, bindery.WithPlaintext())
	}
	if s.UserAgent != "" {
		options = append(options, bindery.WithUserAgent(s.UserAgent))
	}
	if s.Retry != nil {
		options = append(options, bindery.WithRetry(bindery.RetryPolicy{
			Attempts: s.Retry.Attempts, Base: milliseconds(s.Retry.BaseMs), Cap: milliseconds(s.Retry.CapMs),
		}))
	}
	if s.Token != nil {
		source := s.Token.source()
		out.show(source)
		options = append(options, bindery.WithTokenSource(source))
	}
	client, err := bindery.NewClient(s.Address, options...)
	if err != nil {
		return nil, err
	}
	out.show(client)
	out.show(*client)
	return client, nil
}

func (t *tokenSettings) source() bindery.TokenSource {
	switch {
	case t.Static != nil:
		return bindery.StaticToken(*t.Static)
	case t.File != nil:
		return bindery.TokenFile(*t.File)
	case len(t.Exec) > 0:
		return bindery.TokenCommand(t.Exec[0], t.Exec[1:]...)
	default:
		return bindery.StaticToken("")
	}
}

func milliseconds(count int64) time.Duration { return time.Duration(count) * time.Millisecond }
