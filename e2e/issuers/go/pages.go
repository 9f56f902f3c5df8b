package main

import (
	"html/template"
	"net/http"

	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"
)

// pages are the pages on which a person signs in and consents.
type pages struct {
	store    *store
	provider *op.Provider
}

var templates = template.Must(template.New("").Parse(`
{{define "head"}}<!DOCTYPE html>
<html><head><meta charset="utf-8"><title>{{.}}</title></head><body><h1>{{.}}</h1>{{end}}

{{define "login"}}{{template "head" "Log in"}}{{with .Problem}}<p class="error">{{.}}</p>{{end}}
<form method="post"><input type="hidden" name="id" value="{{.ID}}">
<label>User <input type="text" name="username"></label><label>Password <input type="password" name="password"></label>
<button>Log in</button></form></body></html>{{end}}

{{define "consent"}}{{template "head" "Grant access?"}}<p>{{.Client}} asks for: {{range .Scopes}}{{.}} {{end}}</p>
<form method="post" action="/consent"><input type="hidden" name="id" value="{{.ID}}">
<button name="answer" value="yes">Grant</button><button name="answer" value="no">Deny</button></form></body></html>{{end}}

{{define "device"}}{{template "head" "Connect a device"}}{{with .Problem}}<p class="error">{{.}}</p>{{end}}
<form method="post"><label>Code <input type="text" name="user_code" value="{{.Code}}"></label>
<label>User <input type="text" name="username"></label><label>Password <input type="password" name="password"></label>
<button name="answer" value="yes">Connect</button><button name="answer" value="no">Deny</button></form></body></html>{{end}}

{{define "done"}}{{template "head" "Done"}}<p id="done">Return to your device.</p></body></html>{{end}}
`))

func show(w http.ResponseWriter, name string, data any) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	if err := templates.ExecuteTemplate(w, name, data); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

// person returns who signed in by the form of a request.
func (p *pages) person(r *http.Request) (*user, error) {
	name, password := r.FormValue("username"), r.FormValue("password")
	return p.store.user(func(user *user) bool { return user.Name == name && user.Password == password })
}

func (p *pages) showLogin(w http.ResponseWriter, r *http.Request) {
	show(w, "login", map[string]any{"ID": r.FormValue("id")})
}

func (p *pages) login(w http.ResponseWriter, r *http.Request) {
	id := r.FormValue("id")
	user, err := p.person(r)
	if err != nil {
		show(w, "login", map[string]any{"ID": id, "Problem": err.Error()})
		return
	}
	p.store.signIn(id, user.Subject)
	request, err := p.store.authRequest(id)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	show(w, "consent", map[string]any{"ID": id, "Client": request.clientID, "Scopes": request.scopes})
}

func (p *pages) consent(w http.ResponseWriter, r *http.Request) {
	id := r.FormValue("id")
	if r.FormValue("answer") == "yes" {
		p.store.allow(id)
		callback := op.AuthCallbackURL(p.provider)(op.ContextWithIssuer(r.Context(), p.store.settings.Issuer), id)
		http.Redirect(w, r, callback, http.StatusFound)
		return
	}
	request, err := p.store.authRequest(id)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	denied := oidc.ErrAccessDenied().WithDescription("the person denied it")
	op.AuthRequestError(w, r, request, denied, p.provider)
}

func (p *pages) showDevice(w http.ResponseWriter, r *http.Request) {
	show(w, "device", map[string]any{"Code": r.FormValue("user_code")})
}

func (p *pages) device(w http.ResponseWriter, r *http.Request) {
	code := r.FormValue("user_code")
	user, err := p.person(r)
	if err == nil {
		err = p.store.answerDevice(code, user.Subject, r.FormValue("answer") == "yes")
	}
	if err != nil {
		show(w, "device", map[string]any{"Code": code, "Problem": err.Error()})
		return
	}
	show(w, "done", nil)
}
