// Talos' own machinery behind a pipe: one JSON request per line on stdin, one JSON answer per line on stdout.
// Our configurations and secrets are held against it, for every minor release from a go.mod of its own.
//
//	version    which release of the machinery this is
//	validate   load a machine configuration strictly and validate it for one mode
//	secrets    load a secrets bundle, use every key as Talos does, and write it again
//	talosconfig  load a client configuration, use its key pair, and write it again
//	generate   one control plane and one worker configuration, and a client configuration
//	patch      apply patches to a configuration
//	bundle     files of a whole cluster into a folder, or only the time that making them takes
//	rsa        the time that an RSA key of a new bundle takes
package main

import (
	"bufio"
	"crypto/tls"
	stdx509 "crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"time"

	"github.com/siderolabs/crypto/x509"

	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/configpatcher"
	"github.com/siderolabs/talos/pkg/machinery/config/encoder"
	"github.com/siderolabs/talos/pkg/machinery/config/generate"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/config/validation"
)

// request holds the fields of all operations; each reads its own.
type request struct {
	Op string `json:"op"`
	// validate, patch
	Config  string   `json:"config"`
	Mode    string   `json:"mode"`
	Strict  bool     `json:"strict"`
	Patches []string `json:"patches"`
	// secrets (text), talosconfig (text)
	Secrets     string `json:"secrets"`
	Talosconfig string `json:"talosconfig"`
	// generate, bundle
	Name         string   `json:"name"`
	Endpoint     string   `json:"endpoint"`
	Kubernetes   string   `json:"kubernetes"`
	Contract     string   `json:"contract"`
	InstallDisk  string   `json:"installDisk"`
	InstallImage string   `json:"installImage"`
	SANs         []string `json:"sans"`
	Endpoints    []string `json:"endpoints"`
	// bundle
	ControlPlanes []string `json:"controlPlanes"`
	Workers       []string `json:"workers"`
	Out           string   `json:"out"`
	// bundle, rsa
	Rounds int `json:"rounds"`
}

// answer holds the fields of all operations. OK says that there are no errors.
type answer struct {
	OK           bool     `json:"ok"`
	Errors       []string `json:"errors,omitempty"`
	Warnings     []string `json:"warnings,omitempty"`
	Version      string   `json:"version,omitempty"`
	Documents    []string `json:"documents,omitempty"`
	Secrets      string   `json:"secrets,omitempty"`
	Talosconfig  string   `json:"talosconfig,omitempty"`
	ControlPlane string   `json:"controlPlane,omitempty"`
	Worker       string   `json:"worker,omitempty"`
	Config       string   `json:"config,omitempty"`
	Nanoseconds  []int64  `json:"nanoseconds,omitempty"`
}

// mode is what validation wants to know about the place a node runs in.
type mode struct {
	name      string
	install   bool
	container bool
}

func (m mode) String() string        { return m.name }
func (m mode) RequiresInstall() bool { return m.install }
func (m mode) InContainer() bool     { return m.container }

var modes = map[string]mode{
	"metal":     {name: "metal", install: true},
	"cloud":     {name: "cloud"},
	"container": {name: "container", container: true},
}

var operations = map[string]func(*request, *answer) error{
	"version":     version,
	"validate":    validate,
	"secrets":     roundTripSecrets,
	"talosconfig": roundTripTalosconfig,
	"generate":    generateOne,
	"patch":       patch,
	"bundle":      bundle,
	"rsa":         rsa,
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 64<<20)

	out := json.NewEncoder(os.Stdout)
	out.SetEscapeHTML(false)

	for lines.Scan() {
		if err := out.Encode(respond(lines.Bytes())); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}

	if err := lines.Err(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// respond never panics: a fault of the machinery on odd input is an answer too.
func respond(line []byte) (a answer) {
	defer func() {
		if fault := recover(); fault != nil {
			a = answer{Errors: []string{fmt.Sprintf("panic: %v", fault)}}
		}
	}()

	var r request

	err := json.Unmarshal(line, &r)
	if err == nil {
		if operation, found := operations[r.Op]; found {
			err = operation(&r, &a)
		} else {
			err = fmt.Errorf("there is no operation %q", r.Op)
		}
	}

	a.Errors = append(a.Errors, list(err)...)
	a.OK = len(a.Errors) == 0

	return a
}

// list takes a collection of errors apart.
func list(err error) []string {
	if err == nil {
		return nil
	}

	if many, ok := err.(interface{ WrappedErrors() []error }); ok {
		var all []string

		for _, one := range many.WrappedErrors() {
			all = append(all, list(one)...)
		}

		return all
	}

	return []string{err.Error()}
}

func version(_ *request, a *answer) error {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return fmt.Errorf("this program does not know what it was built from")
	}

	for _, module := range info.Deps {
		if module.Path == "github.com/siderolabs/talos/pkg/machinery" {
			a.Version = module.Version
		}
	}

	return nil
}

func validate(r *request, a *answer) error {
	m, found := modes[r.Mode]
	if !found {
		return fmt.Errorf("there is no mode %q", r.Mode)
	}

	provider, err := configloader.NewFromBytes([]byte(r.Config))
	if err != nil {
		return fmt.Errorf("load: %w", err)
	}

	for _, document := range provider.Documents() {
		a.Documents = append(a.Documents, document.Kind())
	}

	options := []validation.Option{validation.WithLocal()}
	if r.Strict {
		options = append(options, validation.WithStrict())
	}

	a.Warnings, err = provider.Validate(m, options...)

	return err
}

// load reads a bundle from text. Every release can read one from a file only.
func load(text string) (*secrets.Bundle, error) {
	file, err := os.CreateTemp("", "secrets-*.yaml")
	if err != nil {
		return nil, err
	}

	defer os.Remove(file.Name()) //nolint:errcheck

	if _, err = file.WriteString(text); err != nil {
		return nil, err
	}

	if err = file.Close(); err != nil {
		return nil, err
	}

	return secrets.LoadBundle(file.Name())
}

func roundTripSecrets(r *request, a *answer) error {
	b, err := load(r.Secrets)
	if err != nil {
		return fmt.Errorf("load: %w", err)
	}

	// Newer releases check a bundle by themselves.
	if checked, ok := any(b).(interface{ Validate() error }); ok {
		a.Errors = append(a.Errors, list(checked.Validate())...)
	}

	if b.Certs == nil {
		return fmt.Errorf("the bundle has no certificates")
	}

	// A label that a release does not know shows only when the key is used.
	authorities := map[string]*x509.PEMEncodedCertificateAndKey{
		"etcd": b.Certs.Etcd, "k8s": b.Certs.K8s, "k8saggregator": b.Certs.K8sAggregator, "os": b.Certs.OS,
	}
	for name, authority := range authorities {
		if _, err = x509.NewCertificateAuthorityFromCertificateAndKey(authority); err != nil {
			a.Errors = append(a.Errors, fmt.Sprintf("use the authority %s: %v", name, err))
		} else if _, err = tls.X509KeyPair(authority.Crt, authority.Key); err != nil {
			a.Errors = append(a.Errors, fmt.Sprintf("key and certificate of %s: %v", name, err))
		}
	}

	if b.Certs.K8sServiceAccount == nil {
		return fmt.Errorf("the bundle has no service account key")
	}

	if _, err = b.Certs.K8sServiceAccount.GetKey(); err != nil {
		a.Errors = append(a.Errors, fmt.Sprintf("use the service account key: %v", err))
	}

	text, err := encoder.NewEncoder(b, encoder.WithComments(encoder.CommentsDisabled)).Encode()
	a.Secrets = string(text)

	return err
}

func roundTripTalosconfig(r *request, a *answer) error {
	c, err := clientconfig.FromString(r.Talosconfig)
	if err != nil {
		return fmt.Errorf("load: %w", err)
	}

	current, found := c.Contexts[c.Context]
	if !found {
		return fmt.Errorf("the current context %q is not there", c.Context)
	}

	if err = checkClient(current); err != nil {
		return err
	}

	text, err := c.Bytes()
	a.Talosconfig = string(text)

	return err
}

// checkClient uses the key pair of a context as a client would, and looks at it as a node would.
func checkClient(context *clientconfig.Context) error {
	parts := [3][]byte{}

	for i, encoded := range []string{context.CA, context.Crt, context.Key} {
		var err error
		if parts[i], err = base64.StdEncoding.DecodeString(encoded); err != nil {
			return err
		}
	}

	pair, err := tls.X509KeyPair(parts[1], parts[2])
	if err != nil {
		return err
	}

	leaf, err := stdx509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		return err
	}

	roots := stdx509.NewCertPool()
	if !roots.AppendCertsFromPEM(parts[0]) {
		return fmt.Errorf("there is no certificate in the context's authority")
	}

	usages := []stdx509.ExtKeyUsage{stdx509.ExtKeyUsageClientAuth}
	if !slices.Equal(leaf.ExtKeyUsage, usages) {
		return fmt.Errorf("a node wants a client certificate for client authentication and nothing else")
	}

	_, err = leaf.Verify(stdx509.VerifyOptions{Roots: roots, KeyUsages: usages})

	return err
}

// input prepares the machinery's own generator.
func input(r *request, b *secrets.Bundle) (*generate.Input, error) {
	contract := config.TalosVersionCurrent

	if r.Contract != "" {
		var err error
		if contract, err = config.ParseContractFromVersion(r.Contract); err != nil {
			return nil, err
		}
	}

	if b == nil {
		var err error
		if b, err = secrets.NewBundle(secrets.NewClock(), contract); err != nil {
			return nil, err
		}
	}

	options := []generate.Option{
		generate.WithVersionContract(contract),
		generate.WithSecretsBundle(b),
		generate.WithEndpointList(r.Endpoints),
		generate.WithAdditionalSubjectAltNames(r.SANs),
	}
	if r.InstallDisk != "" {
		options = append(options, generate.WithInstallDisk(r.InstallDisk))
	}

	if r.InstallImage != "" {
		options = append(options, generate.WithInstallImage(r.InstallImage))
	}

	return generate.NewInput(r.Name, r.Endpoint, r.Kubernetes, options...)
}

// text is a configuration as `talosctl gen config --with-docs=false --with-examples=false` writes it.
func text(provider config.Provider, patches []configpatcher.Patch) ([]byte, error) {
	if len(patches) > 0 {
		patched, err := configpatcher.Apply(configpatcher.WithConfig(provider), patches)
		if err != nil {
			return nil, err
		}

		return patched.Bytes()
	}

	return provider.EncodeBytes(encoder.WithComments(encoder.CommentsDisabled))
}

func generateOne(r *request, a *answer) error {
	var b *secrets.Bundle

	if r.Secrets != "" {
		var err error
		if b, err = load(r.Secrets); err != nil {
			return fmt.Errorf("load: %w", err)
		}
	}

	in, err := input(r, b)
	if err != nil {
		return err
	}

	patches, err := configpatcher.LoadPatches(r.Patches)
	if err != nil {
		return fmt.Errorf("load the patches: %w", err)
	}

	for kind, to := range map[machine.Type]*string{machine.TypeControlPlane: &a.ControlPlane, machine.TypeWorker: &a.Worker} {
		provider, err := in.Config(kind)
		if err != nil {
			return err
		}

		encoded, err := text(provider, patches)
		if err != nil {
			return err
		}

		*to = string(encoded)
	}

	client, err := in.Talosconfig()
	if err != nil {
		return err
	}

	encoded, err := client.Bytes()
	if err != nil {
		return err
	}

	a.Talosconfig = string(encoded)

	encoded, err = encoder.NewEncoder(in.Options.SecretsBundle, encoder.WithComments(encoder.CommentsDisabled)).Encode()
	a.Secrets = string(encoded)

	return err
}

func patch(r *request, a *answer) error {
	provider, err := configloader.NewFromBytes([]byte(r.Config))
	if err != nil {
		return fmt.Errorf("load: %w", err)
	}

	patches, err := configpatcher.LoadPatches(r.Patches)
	if err != nil {
		return fmt.Errorf("load the patches: %w", err)
	}

	encoded, err := text(provider, patches)
	a.Config = string(encoded)

	return err
}

// bundle makes the files of a whole cluster, one configuration per node, from secrets that are given as text.
func bundle(r *request, a *answer) error {
	for range max(r.Rounds, 1) {
		started := time.Now()

		files, err := wholeCluster(r)
		if err != nil {
			return err
		}

		for name, content := range files {
			if r.Out == "" {
				break
			}

			if err = os.WriteFile(filepath.Join(r.Out, name), content, 0o600); err != nil {
				return err
			}
		}

		a.Nanoseconds = append(a.Nanoseconds, time.Since(started).Nanoseconds())
	}

	return nil
}

func wholeCluster(r *request) (map[string][]byte, error) {
	b, err := load(r.Secrets)
	if err != nil {
		return nil, fmt.Errorf("load: %w", err)
	}

	in, err := input(r, b)
	if err != nil {
		return nil, err
	}

	files := map[string][]byte{}
	nodes := map[machine.Type][]string{machine.TypeControlPlane: r.ControlPlanes, machine.TypeWorker: r.Workers}

	for kind, names := range nodes {
		for _, name := range names {
			provider, err := in.Config(kind)
			if err != nil {
				return nil, err
			}

			if files[name+".yaml"], err = text(provider, nil); err != nil {
				return nil, err
			}
		}
	}

	client, err := in.Talosconfig()
	if err != nil {
		return nil, err
	}

	files["talosconfig"], err = client.Bytes()

	return files, err
}

func rsa(r *request, a *answer) error {
	for range max(r.Rounds, 1) {
		started := time.Now()

		if _, err := x509.NewRSAKey(); err != nil {
			return err
		}

		a.Nanoseconds = append(a.Nanoseconds, time.Since(started).Nanoseconds())
	}

	return nil
}
