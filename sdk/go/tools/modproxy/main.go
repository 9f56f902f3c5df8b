// Command modproxy writes the Go SDK as a module proxy of files, from which it installs without a server:
//
//	go run . -module ../.. -version v0.1.0 -out DIR
//	GOPROXY=file://DIR,$(go env GOPROXY) GONOSUMDB=kube-bind.io go get kube-bind.io/bindery/sdk/go@v0.1.0
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/semver"
	"golang.org/x/mod/zip"
)

func main() {
	folder := flag.String("module", ".", "folder of the module")
	version := flag.String("version", "", "version of the module, such as v0.1.0")
	out := flag.String("out", "", "folder that becomes the proxy")
	flag.Parse()
	if err := run(*folder, *version, *out); err != nil {
		fmt.Fprintln(os.Stderr, "modproxy:", err)
		os.Exit(1)
	}
}

func run(folder, version, out string) error {
	if !semver.IsValid(version) || out == "" {
		return fmt.Errorf("give -version (%q is none) and -out", version)
	}
	goMod, err := os.ReadFile(filepath.Join(folder, "go.mod"))
	if err != nil {
		return err
	}
	path := modfile.ModulePath(goMod)
	escaped, err := module.EscapePath(path)
	if err != nil {
		return err
	}
	versions := filepath.Join(out, filepath.FromSlash(escaped), "@v")
	if err := os.MkdirAll(versions, 0o755); err != nil {
		return err
	}
	// The time of a version only orders pseudo-versions; a fixed one makes the same files each time.
	info, err := json.Marshal(map[string]any{"Version": version, "Time": time.Unix(0, 0).UTC()})
	if err != nil {
		return err
	}
	for name, text := range map[string][]byte{"list": []byte(version + "\n"), version + ".info": info, version + ".mod": goMod} {
		if err := os.WriteFile(filepath.Join(versions, name), text, 0o644); err != nil {
			return err
		}
	}
	archive, err := os.Create(filepath.Join(versions, version+".zip"))
	if err != nil {
		return err
	}
	if err := zip.CreateFromDir(archive, module.Version{Path: path, Version: version}, folder); err != nil {
		archive.Close()
		return err
	}
	return archive.Close()
}
