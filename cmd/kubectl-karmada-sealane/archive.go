// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"compress/gzip"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/sealane-io/sealane/internal/redact"
)

// What gather writes: a directory of files that people read, of which --from reads the manifest and the objects.
const (
	archiveFormat  = 1
	archiveDir     = "sealane-gather"
	manifestFile   = "manifest.yaml"
	objectsDir     = "objects"
	karmadaDir     = "karmada"
	hostDir        = "host"
	membersDir     = "members"
	objectFileMode = 0o600
)

// manifest says what an archive is, and what it lacks.
type manifest struct {
	Format  int           `json:"format"`
	Taken   time.Time     `json:"taken"`
	Plugin  string        `json:"plugin"`
	Karmada placeRecord   `json:"karmada"`
	Host    placeRecord   `json:"host"`
	Members []placeRecord `json:"members"`
	// Missing are logs, events and states of nodes that could not be read.
	Missing []missingFile `json:"missing,omitempty"`
}

// placeRecord is a place without its objects.
type placeRecord struct {
	Name       string `json:"name,omitempty"`
	Context    string `json:"context,omitempty"`
	Kubernetes string `json:"kubernetes,omitempty"`
	// Unasked says why nothing was read, and Unread by kind why none of it was.
	Unasked string            `json:"unasked,omitempty"`
	Unread  map[string]string `json:"unread,omitempty"`
}

type missingFile struct {
	Path string `json:"path"`
	Why  string `json:"why"`
}

// archive is written by many at once.
type archive struct {
	redactor *redact.Redactor
	when     time.Time

	mu      sync.Mutex
	gzip    *gzip.Writer
	tar     *tar.Writer
	missing []missingFile
}

func newArchive(out io.Writer, when time.Time, redactor *redact.Redactor) *archive {
	zipped := gzip.NewWriter(out)
	return &archive{redactor: redactor, when: when, gzip: zipped, tar: tar.NewWriter(zipped)}
}

// text adds a file, redacted.
func (a *archive) text(file, text string) error { return a.add(file, []byte(a.redactor.Text(text))) }

func (a *archive) add(file string, data []byte) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	err := a.tar.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: path.Join(archiveDir, file),
		Mode: objectFileMode, Size: int64(len(data)), ModTime: a.when, Format: tar.FormatPAX})
	if err == nil {
		_, err = a.tar.Write(data)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	return nil
}

// lacks notes that a file could not be had.
func (a *archive) lacks(file string, why error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.missing = append(a.missing, missingFile{file, a.redactor.Text(why.Error())})
}

// objects adds those of a place. Secrets are not read in the first place; none gets by here.
func (a *archive) objects(dir string, p *place) error {
	for _, o := range p.objects {
		fields, err := fieldsOf(o)
		if err != nil {
			return err
		}
		kind := o.GetObjectKind().GroupVersionKind().Kind
		if kind == "Secret" {
			continue
		}
		a.redactor.Object(fields)
		text, err := yaml.Marshal(fields)
		if err != nil {
			return fmt.Errorf("write %s: %w", describe(o), err)
		}
		name := strings.TrimPrefix(o.GetNamespace()+"_"+o.GetName(), "_")
		if err := a.add(path.Join(dir, objectsDir, kind, name+".yaml"), text); err != nil {
			return err
		}
	}
	return nil
}

// fieldsOf an object, as JSON has them.
func fieldsOf(o client.Object) (map[string]any, error) {
	text, err := json.Marshal(o)
	if err != nil {
		return nil, fmt.Errorf("write %s: %w", describe(o), err)
	}
	var out map[string]any
	if err := json.Unmarshal(text, &out); err != nil {
		return nil, fmt.Errorf("write %s: %w", describe(o), err)
	}
	return out, nil
}

// close adds the manifest and ends the archive.
func (a *archive) close(s *snapshot) error {
	m := manifest{Format: archiveFormat, Taken: s.taken, Plugin: s.plugin, Karmada: a.record(&s.karmada),
		Host: a.record(&s.host), Missing: a.missing}
	for i := range s.members {
		m.Members = append(m.Members, a.record(&s.members[i]))
	}
	slices.SortFunc(m.Missing, func(a, b missingFile) int { return strings.Compare(a.Path, b.Path) })
	text, err := yaml.Marshal(m)
	if err == nil {
		err = a.add(manifestFile, text)
	}
	if err == nil {
		err = a.tar.Close()
	}
	if err == nil {
		err = a.gzip.Close()
	}
	if err != nil {
		return fmt.Errorf("end the archive: %w", err)
	}
	return nil
}

func (a *archive) record(p *place) placeRecord {
	r := placeRecord{Name: p.name, Context: p.context, Kubernetes: p.kubernetes}
	if !contextName.MatchString(r.Context) {
		r.Context = r.Name // no word that a command line can have
	}
	for kind, why := range p.unread {
		why = a.redactor.Text(why)
		if kind == everything {
			r.Unasked = why
			continue
		}
		if r.Unread == nil {
			r.Unread = map[string]string{}
		}
		r.Unread[kind] = why
	}
	return r
}

// place of a record.
func (r *placeRecord) place() place {
	p := place{name: r.Name, context: r.Context, kubernetes: r.Kubernetes}
	for kind, why := range r.Unread {
		p.misses(kind, why)
	}
	if r.Unasked != "" {
		p.misses(everything, r.Unasked)
	}
	return p
}
