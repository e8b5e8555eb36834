;;; whole_loop.el --- the documented eglot snippet in a real Emacs  -*- lexical-binding: t -*-
;; Started by test_emacs.py: a review through a code action, findings as Flymake diagnostics, a fix applied.
(setq make-backup-files nil create-lockfiles nil)
(require 'eglot)
(require 'flymake)

(defun outpost-fail (format &rest arguments)
  (message "FAILED %s" (apply #'format format arguments))
  (kill-emacs 1))

(defun outpost-wait (what condition)
  (let ((end (+ (float-time) 60)))
    (while (and (not (funcall condition)) (< (float-time) end))
      (accept-process-output nil 0.05))
    (if (funcall condition) (message "ok %s" what) (outpost-fail "timed out: %s" what))))

(defun outpost-diagnostics ()
  (flymake-start)
  (flymake-diagnostics))

(defun outpost-actions (kind)
  "The code actions of KIND over the whole buffer."
  (jsonrpc-request
   (eglot-current-server) :textDocument/codeAction
   (list :textDocument (eglot--TextDocumentIdentifier)
         :range (list :start (eglot--pos-to-lsp-position (point-min))
                      :end (eglot--pos-to-lsp-position (point-max)))
         :context (list :diagnostics [] :only (vector kind)))))

(defun outpost-run-action (action)
  "Do what ACTION says, as eglot does."
  (let ((edit (plist-get action :edit)) (command (plist-get action :command)))
    (when edit (eglot--apply-workspace-edit edit))
    (when command
      (eglot-execute-command (eglot-current-server) (intern (plist-get command :command)) (plist-get command :arguments)))))

(let ((eglot-server-programs
       (list (list 'python-mode (getenv "OUTPOST_PYTHON") "-m" "outpost_lsp" "serve")))
      (eglot-sync-connect 30)
      (eglot-confirm-server-initiated-edits nil))
  (find-file (expand-file-name "app.py" (getenv "OUTPOST_REPOSITORY")))
  (python-mode)
  (apply #'eglot (eglot--guess-contact))
  (outpost-wait "the server is there" (lambda () (and (eglot-current-server) (eglot-managed-p))))
  (let ((review (seq-first (outpost-actions "source.outpost.review"))))
    (unless review (outpost-fail "there is no review action"))
    (outpost-run-action review))
  (outpost-wait "findings are diagnostics" #'outpost-diagnostics)
  (let ((fix (seq-find (lambda (action) (eq (plist-get action :isPreferred) t)) (outpost-actions "quickfix"))))
    (unless fix (outpost-fail "there is no fix"))
    (outpost-run-action fix))
  (outpost-wait "the fix is in the buffer"
                (lambda () (save-excursion (goto-char (point-min)) (search-forward "path == \"x\"" nil t))))
  (set-buffer-modified-p nil)
  (eglot-shutdown (eglot-current-server))
  (message "PASSED %s" emacs-version)
  (kill-emacs 0))
